package grounding

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

//go:embed phrases/*.yaml
var files embed.FS

// language is one phrase table. What its fields mean is said in phrases/en.yaml.
type language struct {
	Grammar       string              `yaml:"grammar"`
	FirstPerson   phrases             `yaml:"first_person"`
	Perfect       phrases             `yaml:"perfect"`
	Achieved      phrases             `yaml:"achieved"`
	Fillers       phrases             `yaml:"fillers"`
	Conjunctions  phrases             `yaml:"conjunctions"`
	NewSubjects   phrases             `yaml:"new_subjects"`
	Passive       []passive           `yaml:"passive"`
	Agent         phrases             `yaml:"agent"`
	OwnAgents     phrases             `yaml:"own_agents"`
	Negations     phrases             `yaml:"negations"`
	Positive      phrases             `yaml:"positive"`
	Conditionals  phrases             `yaml:"conditionals"`
	Finals        phrases             `yaml:"finals"`
	Addressees    phrases             `yaml:"addressees"`
	Pronouns      phrases             `yaml:"pronouns"`
	Reporting     phrases             `yaml:"reporting"`
	Attributions  phrases             `yaml:"attributions"`
	Past          phrases             `yaml:"past"`
	Dates         phrases             `yaml:"dates"`
	Inline        phrases             `yaml:"inline"`
	Given         phrases             `yaml:"given"`
	Opening       phrases             `yaml:"opening"`
	Determiners   phrases             `yaml:"determiners"`
	Endings       phrases             `yaml:"endings"`
	Breaks        phrases             `yaml:"breaks"`
	To            phrases             `yaml:"to"`
	Suffixes      bool                `yaml:"suffixes"`
	Abbreviations phrases             `yaml:"abbreviations"`
	Months        phrases             `yaml:"months"`
	Things        phrases             `yaml:"things"`
	Texts         phrases             `yaml:"texts"`
	Runs          phrases             `yaml:"runs"`
	Reads         phrases             `yaml:"reads"`
	Verbs         []verbs             `yaml:"verbs"`
	NotWith       map[string][]string `yaml:"not_with"`

	past, participle, base verbTable
	notWith                map[string]phrases
}

// passive is a way to say that something was done without saying by whom.
type passive struct {
	Aux   phrases `yaml:"aux"`
	Needs phrases `yaml:"needs"` // one of them must be there too, if any is listed
	// Closing wants a verb that is not weak at the end of its clause: "the note is
	// saved" is a claim, "notes are saved every night" is none.
	Closing bool `yaml:"closing"`
}

// verbs are the forms of some verbs of one kind.
type verbs struct {
	Kind Kind     `yaml:"kind"`
	Weak bool     `yaml:"weak"`
	Past []string `yaml:"past"`
	PP   []string `yaml:"pp"` // the participles; absent: the same as Past
	Base []string `yaml:"base"`
}

// verb is one form that was found.
type verb struct {
	kind  Kind
	weak  bool
	words []string
}

// verbTable finds verbs by their first word, longer ones first.
type verbTable map[string][]verb

func (t verbTable) add(kind Kind, weak bool, forms []string) {
	for _, form := range forms {
		words := strings.Fields(form)
		list := append(t[words[0]], verb{kind: kind, weak: weak, words: words})
		slices.SortStableFunc(list, func(a, b verb) int { return len(b.words) - len(a.words) })
		t[words[0]] = list
	}
}

// at returns the verb at position i of a sentence.
func (t verbTable) at(s sentence, i int) (verb, bool) {
	if i < 0 || i >= len(s.words) {
		return verb{}, false
	}
	for _, v := range t[s.words[i].text] {
		if s.has(i, v.words) {
			return v, true
		}
	}
	return verb{}, false
}

// phrases are words or sequences of words, by their first word.
type phrases map[string][][]string

func (p *phrases) UnmarshalYAML(n *yaml.Node) error {
	var list []string
	if err := n.Decode(&list); err != nil {
		return err
	}
	*p = phrasesOf(list)
	return nil
}

func phrasesOf(list []string) phrases {
	p := phrases{}
	for _, text := range list {
		words := strings.Fields(text)
		all := append(p[words[0]], words)
		slices.SortStableFunc(all, func(a, b []string) int { return len(b) - len(a) })
		p[words[0]] = all
	}
	return p
}

// at is the length in words of the longest phrase at position i; 0 if there is
// none.
func (p phrases) at(s sentence, i int) int {
	if i < 0 || i >= len(s.words) {
		return 0
	}
	for _, words := range p[s.words[i].text] {
		if s.has(i, words) {
			return len(words)
		}
	}
	return 0
}

// in tells whether a phrase begins between from and to.
func (p phrases) in(s sentence, from, to int) bool {
	for i := max(from, 0); i < to; i++ {
		if p.at(s, i) > 0 {
			return true
		}
	}
	return false
}

// tables are everything that is data.
type tables struct {
	languages []*language
	// toolKinds maps a word of a tool's name to what it can mean.
	toolKinds map[string][]Kind
	backs     map[Kind][]Kind
}

// load parses the embedded tables once.
var load = sync.OnceValues(func() (*tables, error) {
	t := &tables{toolKinds: map[string][]Kind{}}
	for _, name := range []string{"en", "de"} {
		l, err := loadLanguage("phrases/" + name + ".yaml")
		if err != nil {
			return nil, err
		}
		t.languages = append(t.languages, l)
	}
	var kinds struct {
		Tools map[Kind][]string `yaml:"tools"`
		Backs map[Kind][]Kind   `yaml:"backs"`
	}
	if err := decode("phrases/kinds.yaml", &kinds); err != nil {
		return nil, err
	}
	for kind, words := range kinds.Tools {
		for _, w := range words {
			t.toolKinds[w] = append(t.toolKinds[w], kind)
		}
	}
	t.backs = kinds.Backs
	return t, nil
})

func decode(name string, into any) error {
	f, err := files.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	dec := yaml.NewDecoder(f)
	dec.KnownFields(true)
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func loadLanguage(name string) (*language, error) {
	l := &language{past: verbTable{}, participle: verbTable{}, base: verbTable{}, notWith: map[string]phrases{}}
	if err := decode(name, l); err != nil {
		return nil, err
	}
	for _, v := range l.Verbs {
		if v.PP == nil {
			v.PP = v.Past
		}
		l.past.add(v.Kind, v.Weak, v.Past)
		l.participle.add(v.Kind, v.Weak, v.PP)
		l.base.add(v.Kind, v.Weak, v.Base)
	}
	for word, with := range l.NotWith {
		l.notWith[word] = phrasesOf(with)
	}
	return l, nil
}

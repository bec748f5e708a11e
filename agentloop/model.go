package agentloop

import (
	"context"

	"runnerd/llm"
	"runnerd/policy"
	"runnerd/task"
)

// The tool modes (DESIGN, section 6, "honest tool support").
const (
	toolsAuto   = "auto"
	toolsFenced = "fenced"
	toolsNone   = "none"
)

func (a *attempt) openModel(ctx context.Context) error {
	if a.run.Script != (task.Script{}) {
		return a.rehearse(ctx)
	}
	if err := a.useModel(ctx, a.spec.Model); err != nil {
		return a.fail("model %s: %s", a.spec.Model, err)
	}
	return nil
}

// rehearse has the run's script played in place of the task's model.
func (a *attempt) rehearse(ctx context.Context) error {
	model, spec, err := a.Models.Rehearsal(ctx, a.spec.Model, a.run.Script)
	if err != nil {
		return a.fail("script: %s", err)
	}
	a.model, a.modelSpec = model, spec
	if spec.ToolMode == toolsFenced {
		a.model, a.fenced = llm.Fenced(model), true
	}
	return nil
}

func (a *attempt) useModel(ctx context.Context, name string) error {
	model, spec, err := a.Models.Model(ctx, name)
	if err != nil {
		return err
	}
	a.model, a.modelSpec, a.fenced = model, spec, false
	if spec.ToolMode == toolsFenced || spec.ToolMode == toolsAuto && a.run.HasMark(task.MarkToolsFenced) {
		a.model, a.fenced = llm.Fenced(model), true
	}
	return nil
}

// useFenced goes on with calls written as fenced blocks, for this run, because
// the vendor rejected native ones.
func (a *attempt) useFenced() {
	a.model, a.fenced = llm.Fenced(a.model), true
	a.run.Mark(task.MarkToolsFenced)
	a.warn("vendor rejects native tools; fenced calls are used", []string{"model " + a.modelSpec.Name})
}

func (a *attempt) toolMode() string { return a.modelSpec.ToolMode }

// shown is what of an offer the model at hand gets: nothing if it takes no tools,
// which a fallback may not.
func (a *attempt) shown(offer policy.Offer) policy.Offer {
	if a.toolMode() == toolsNone {
		return policy.Offer{}
	}
	return offer
}

// noTools marks a run whose model can take no tools although some were chosen.
func (a *attempt) noTools(eff policy.Effective) {
	a.forgetLook()
	if eff.Tools.Len() > 0 || eff.TaskConnectors.Len() > 0 || eff.SessionConnectors.Len() > 0 || eff.ProjectConnectors.Len() > 0 {
		a.run.Mark(task.MarkToolsUnsupported)
	}
}

const noToolsNotice = "[runnerd] This model cannot call tools (tool_mode: none); the connectors that were selected for it were not available in this run."

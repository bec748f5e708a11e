// Package sqldb is what the main and the policy database share: how they are opened,
// written to, migrated, checked and copied, who holds them, and how they know one
// another. Open answers a DB whose reads are free and whose writes come one after
// another; a Schema says what the database is to look like.
//
// Each of the two has an id and remembers the other's, with how far the other had
// come; the state directory's lock remembers both. Look reads that without changing
// a file, Judge says whether the three belong together, and Hold keeps everybody
// else away. A database that is missing, foreign or older than its partner remembers
// is not opened for writing before a person has said so.
package sqldb

// Package scheduler decides when tasks run. It answers three questions: what a
// schedule means ([Parse], [Schedule.Next]), what a task's passed instants
// become ([Plan]), and when to look again ([Scheduler]).
//
// cmd/runnerd builds one Scheduler, hands it the accepted tasks and runs it;
// config, control and the command line use Parse and Next to check and to show
// schedules. A Scheduler promises that every instant of a task ends in exactly
// one row of its [Store], whatever the clock, the daemon or the store do; what
// happens to a queued run is the business of package dispatch.
package scheduler

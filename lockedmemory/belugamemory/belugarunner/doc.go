// Package belugarunner runs agents of Beluga AI v2 over sessions that many instances share:
//
//	runner, err := belugarunner.New(assistant, "redis://localhost:6379", nil)
//	for event, err := range runner.Run(ctx, "session-4711", schema.NewHumanMessage("hello")) {
//
// The runs of a session follow each other, on all instances. Every answer that a reader sees is stored.
// [History] gives the model of the agent the turns before the question.
//
// Options.SessionService keeps the sessions in a service of the application. Errors have the codes of
// package belugamemory. docs/design/beluga-runner.md has all states.
package belugarunner

// Package check holds the dashboard, the alert rules and compose.yaml to what they describe. It starts
// a Prometheus, plays the scene of internal/test/incidents, and runs every query. It is a module of its own,
// so that its libraries reach no user of belugalock.
package check

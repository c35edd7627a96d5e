package report

// Locked is the part of a turn that the lock covers in a run.
type Locked string

// The parts.
const (
	NoLock    Locked = "none"
	SaveOnly  Locked = "save"
	WholeTurn Locked = "turn"
)

// Name is the title of the run's column.
func (l Locked) Name() string {
	return map[Locked]string{NoLock: "no lock", SaveOnly: "Save only", WholeTurn: "whole turn"}[l]
}

package scenario

import (
	"fmt"
	"slices"
)

// Faults are the releases of a subject that returned an error. They do not end a measurement: on a
// machine that stalls, some libraries cannot tell the outcome of a release. The report lists them
// beside the results.
type Faults struct {
	N     int
	First string // what the first of them said
}

func (f *Faults) add(err error) {
	if err != nil {
		f.merge(Faults{1, err.Error()})
	}
}

func (f *Faults) merge(others Faults) {
	if f.N == 0 {
		f.First = others.First
	}
	f.N += others.N
}

// addFaults keeps faults of a subject for the end of the scenario.
func (b *Bench) addFaults(subject string, f Faults) {
	all := b.faults[subject]
	all.merge(f)
	b.faults[subject] = all
}

// notes returns what is to be said about the faults of all subjects, in the order of their names.
func (b *Bench) notes() (notes []string) {
	for subject, f := range b.faults {
		switch f.N {
		case 0:
		case 1:
			notes = append(notes, fmt.Sprintf("%s: a release returned an error: %s", subject, f.First))
		default:
			notes = append(notes, fmt.Sprintf("%s: %d releases returned an error, the first: %s", subject, f.N, f.First))
		}
	}
	slices.Sort(notes)
	return notes
}

package conversation

import (
	"slices"
	"strings"
	"testing"
)

// question and answer make messages; the writer's name may carry the ID of a Save, as in "a/save-1".
func question(turn int, by string) Message {
	writer, write, _ := strings.Cut(by, "/")
	return Message{Turn: turn, Role: Question, Writer: writer, Write: write}
}

func answer(turn int, by string, seen int) Message {
	m := question(turn, by)
	m.Role, m.Seen = Answer, seen
	return m
}

// turn makes the two messages of a turn that stands right behind others.
func turn(number int, by string, seen int) []Message {
	return []Message{question(number, by), answer(number, by, seen)}
}

func acknowledged(turn int, writer string, when ...int64) Attempt {
	a := Attempt{Turn: turn, Writer: writer, Acknowledged: true}
	if len(when) == 2 {
		a.Begun, a.Ended = when[0], when[1]
	}
	return a
}

func unknown(turn int, writer string, when ...int64) Attempt {
	a := acknowledged(turn, writer, when...)
	a.Acknowledged = false
	return a
}

func TestJudge_namesWhatIsWrong(t *testing.T) {
	all := []Attempt{acknowledged(0, "a"), acknowledged(1, "b"), acknowledged(2, "a")}
	for name, test := range map[string]struct {
		stored   []Message
		attempts []Attempt
		want     []string
	}{
		"as it should be": {
			slices.Concat(turn(0, "a", 0), turn(1, "b", 2), turn(2, "a", 4)), all, nil,
		},
		"nothing stored, nothing acknowledged": {nil, []Attempt{unknown(0, "a")}, nil},
		"nobody knows of it":                   {turn(7, "a", 0), nil, nil},
		"the outcome of the last is not known, and it is not stored": {
			slices.Concat(turn(0, "a", 0), turn(1, "b", 2)), []Attempt{acknowledged(0, "a"), acknowledged(1, "b"), unknown(2, "a")}, nil,
		},
		"the outcome of the last is not known, and it is stored": {
			slices.Concat(turn(0, "a", 0), turn(1, "b", 2)), []Attempt{acknowledged(0, "a"), unknown(1, "b")}, nil,
		},
		"acknowledged at the second attempt, and stored by the first": {
			turn(0, "a", 0), []Attempt{unknown(0, "a"), acknowledged(0, "b")}, nil,
		},

		"lost alone": {
			slices.Concat(turn(0, "a", 0), turn(1, "b", 2)), all,
			[]string{"turn 2 is lost: acknowledged to a, but nothing of it is stored"},
		},
		"lost, and acknowledged to two": {
			nil, []Attempt{acknowledged(0, "a"), acknowledged(0, "b")},
			[]string{"turn 0 is lost: acknowledged to a, but nothing of it is stored"},
		},
		"lost by a writer who saw nothing of the others": {
			slices.Concat(turn(1, "b", 0), turn(2, "a", 2)), all,
			[]string{"turn 0 is lost: acknowledged to a, but nothing of it is stored"},
		},

		"torn alone: a turn of unknown outcome has no answer": {
			append(turn(0, "a", 0), question(1, "b")), []Attempt{acknowledged(0, "a"), unknown(1, "b")},
			[]string{"turn 1 is torn: question at 2, no answer"},
		},
		"torn alone: a turn of unknown outcome has no question": {
			append(turn(0, "a", 0), answer(1, "b", 2)), []Attempt{acknowledged(0, "a"), unknown(1, "b")},
			[]string{"turn 1 is torn: answer at 2, no question"},
		},
		"torn alone: one turn inside another": {
			[]Message{question(0, "a"), question(1, "b"), answer(1, "b", 1), answer(0, "a", 0)}, all[:2],
			[]string{"turn 0 is torn: question at 0, answer at 3"},
		},
		"torn alone: two turns in each other": {
			[]Message{question(0, "a"), question(1, "b"), answer(0, "a", 0), answer(1, "b", 1)}, all[:2],
			[]string{"turn 0 is torn: question at 0, answer at 2", "turn 1 is torn: question at 1, answer at 3"},
		},
		"torn alone: the answer stands before its question": {
			[]Message{answer(0, "a", 1), question(0, "a")}, all[:1],
			[]string{"turn 0 is torn: question at 1, answer at 0"},
		},
		"torn alone: the answer is another writer's": {
			[]Message{question(0, "a"), answer(0, "b", 0)}, nil,
			[]string{"turn 0 is torn: question at 0, no answer", "turn 0 is torn: answer at 1, no question"},
		},
		"torn alone: question and answer of two Saves": {
			[]Message{question(0, "a/1"), answer(0, "a/2", 0)}, nil,
			[]string{"turn 0 is torn: question at 0, no answer", "turn 0 is torn: answer at 1, no question"},
		},

		"doubled alone: two writers": {
			slices.Concat(turn(0, "a", 0), turn(0, "b", 2), turn(1, "b", 4)), all[:2],
			[]string{"turn 0 is doubled: stored 2 times, by 2 Saves: at 0, 1, 2, 3"},
		},
		"doubled alone: two Saves of a writer": {
			slices.Concat(turn(0, "a/1", 0), turn(0, "a/2", 2)), all[:1],
			[]string{"turn 0 is doubled: stored 2 times, by 2 Saves: at 0, 1, 2, 3"},
		},
		"doubled alone: one Save, repeated": {
			slices.Concat(turn(0, "a/1", 0), turn(1, "b/2", 2), turn(0, "a/1", 0)), all[:2],
			[]string{"turn 0 is doubled: stored 2 times, by one Save, or by some that cannot be told apart: at 0, 1, 4, 5"},
		},
		"doubled alone: three times": {
			slices.Concat(turn(0, "a", 0), turn(0, "b", 2), turn(0, "c", 4)), all[:1],
			[]string{"turn 0 is doubled: stored 3 times, by 3 Saves: at 0, 1, 2, 3, 4, 5"},
		},

		"out of order alone": {
			slices.Concat(turn(2, "a", 0), turn(0, "a", 2)),
			[]Attempt{acknowledged(0, "a", 1, 2), acknowledged(2, "a", 3, 4)},
			[]string{"turn 2 is out of order: question at 0, answer at 1; a began it after turn 0 was acknowledged, which stands further back: question at 2, answer at 3"},
		},
		"out of order alone: of unknown outcome": {
			slices.Concat(turn(2, "a", 0), turn(0, "a", 2)),
			[]Attempt{acknowledged(0, "a", 1, 2), unknown(2, "a", 3, 4)},
			[]string{"turn 2 is out of order: question at 0, answer at 1; a began it after turn 0 was acknowledged, which stands further back: question at 2, answer at 3"},
		},
		"in order: the first was not acknowledged": {
			slices.Concat(turn(2, "a", 0), turn(0, "a", 2)),
			[]Attempt{unknown(0, "a", 1, 2), acknowledged(2, "a", 3, 4)}, nil,
		},
		"in order: acknowledged at a later attempt": {
			slices.Concat(turn(2, "a", 0), turn(0, "a", 2)),
			[]Attempt{unknown(0, "a", 1, 2), acknowledged(2, "a", 3, 4), acknowledged(0, "a", 5, 6)}, nil,
		},
		"in order: begun at an earlier attempt": {
			slices.Concat(turn(2, "a", 0), turn(0, "a", 2)),
			[]Attempt{unknown(2, "a", 1, 2), acknowledged(0, "a", 3, 4), acknowledged(2, "a", 5, 6)}, nil,
		},
		"in order: at the same time": {
			slices.Concat(turn(2, "a", 0), turn(0, "a", 2)),
			[]Attempt{acknowledged(0, "a", 1, 4), acknowledged(2, "a", 3, 6)}, nil,
		},
		"in order: two writers": {
			slices.Concat(turn(2, "b", 0), turn(0, "a", 2)),
			[]Attempt{acknowledged(0, "a", 1, 2), acknowledged(2, "b", 3, 4)}, nil,
		},
		"in order: stored earlier by another writer": {
			slices.Concat(turn(2, "b", 0), turn(0, "a", 2)),
			[]Attempt{acknowledged(0, "a", 1, 2), acknowledged(2, "a", 3, 4), unknown(2, "b")}, nil,
		},
		"in order: without times": {slices.Concat(turn(2, "a", 0), turn(0, "a", 2)), all[:1], nil},

		"stale alone: from an old history": {
			slices.Concat(turn(0, "a", 0), turn(1, "b", 0)), all[:2],
			[]string{"turn 1 is stale: answer at 3 had seen 0 messages, but 2 stand before its question"},
		},
		"stale alone: from a history that is gone": {
			slices.Concat(turn(0, "a", 0), turn(1, "b", 4)), all[:2],
			[]string{"turn 1 is stale: answer at 3 had seen 4 messages, but 2 stand before its question"},
		},

		"lost and torn: acknowledged, but without its answer": {
			append(turn(0, "a", 0), question(1, "b")), all[:2],
			[]string{"turn 1 is lost: acknowledged to b, but question and answer are not both stored", "turn 1 is torn: question at 2, no answer"},
		},
		"lost, and the next stale": {
			slices.Concat(turn(0, "a", 0), turn(2, "a", 4)), all,
			[]string{
				"turn 1 is lost: acknowledged to b, but nothing of it is stored",
				"turn 2 is stale: answer at 3 had seen 4 messages, but 2 stand before its question",
			},
		},
		"torn and stale: both from the same history": {
			[]Message{question(0, "a"), question(1, "b"), answer(0, "a", 0), answer(1, "b", 0)}, all[:2],
			[]string{
				"turn 0 is torn: question at 0, answer at 2",
				"turn 1 is torn: question at 1, answer at 3",
				"turn 1 is stale: answer at 3 had seen 0 messages, but 1 stand before its question",
			},
		},
		"doubled and stale: both from the same history": {
			slices.Concat(turn(0, "a", 0), turn(0, "b", 0)), all[:1],
			[]string{
				"turn 0 is doubled: stored 2 times, by 2 Saves: at 0, 1, 2, 3",
				"turn 0 is stale: answer at 3 had seen 0 messages, but 2 stand before its question",
			},
		},
		"doubled and torn: a writer died, and another did it again": {
			append([]Message{question(0, "a")}, turn(0, "b", 1)...), []Attempt{unknown(0, "a"), acknowledged(0, "b")},
			[]string{"turn 0 is torn: question at 0, no answer", "turn 0 is doubled: stored 2 times, by 2 Saves: at 0, 1, 2"},
		},
		"doubled and torn: an answer is repeated": {
			append(turn(0, "a", 0), answer(0, "a", 0)), all[:1],
			[]string{
				"turn 0 is torn: answer at 2, no question",
				"turn 0 is doubled: stored 2 times, by one Save, or by some that cannot be told apart: at 0, 1, 2",
			},
		},
		"out of order and stale": {
			slices.Concat(turn(2, "a", 2), turn(0, "a", 0)),
			[]Attempt{acknowledged(0, "a", 1, 2), acknowledged(2, "a", 3, 4)},
			[]string{
				"turn 0 is stale: answer at 3 had seen 0 messages, but 2 stand before its question",
				"turn 2 is stale: answer at 1 had seen 2 messages, but 0 stand before its question",
				"turn 2 is out of order: question at 0, answer at 1; a began it after turn 0 was acknowledged, which stands further back: question at 2, answer at 3",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := Judge(test.stored, test.attempts).String(), strings.Join(test.want, "\n"); got != want {
				t.Errorf("the report is\n%s\nwant\n%s", got, want)
			}
		})
	}
}

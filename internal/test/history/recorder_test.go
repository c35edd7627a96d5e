package history

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRecorder_whatWasUnderWayIsUnknown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p")
	r, err := Create(path, "p")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path, "q"); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second process may write to the file: %v", err)
	}
	r.Begin(Op{Kind: Load, Key: "k"}).End(func(o *Op) { o.Outcome, o.Fence = OK, 7 })
	r.Begin(Op{Kind: Save, Key: "k", Entry: "A", Fence: 7})
	_, err = r.out.WriteString(`{"n":2,"done":{"kind":"sa`) // it was killed while it wrote
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	ops, err := ReadFiles(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(ops) != 2 || ops[0].Fence != 7 || ops[0].Return < ops[0].Call || ops[0].Process != "p" || ops[0].Key != Hash("k") ||
		ops[1].Outcome != Unknown || ops[1].Return != 0 {
		t.Errorf("read was %v", ops)
	}
	whole, err := os.ReadFile(path)
	if err != nil || bytes.Contains(whole, []byte(`"k"`)) {
		t.Errorf("the key is in the file, or: %v", err)
	}
	if err := os.WriteFile(path, append([]byte("{torn\n"), whole...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFiles(path); err == nil {
		t.Error("a line that is torn, and not the last one, is read")
	}
}

func TestVerdict_sayWhatIsWrong(t *testing.T) {
	v := CheckSessions([]Op{load(5, 0, 1), save(4, 2, 3, "A", OK)}, Options{})
	text := v.Err().Error()
	for _, part := range []string{"key k: S2", `p {"kind":"save"`, `"fence":4`, `p {"kind":"load"`, `"fence":5`} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

func TestVerdict_undecidedIsAnError(t *testing.T) {
	v := CheckSessions([]Op{load(5, 0, 1)}, Options{Timeout: time.Nanosecond})
	if len(v.Undecided) != 1 || v.Err() == nil {
		t.Errorf("%+v: %v", v, v.Err())
	}
}

func TestVerdict_malformedIsAnError(t *testing.T) {
	for name, v := range map[string]Verdict{
		"two Saves without a turn ID have one entry": CheckSessions([]Op{save(4, 0, 1, "A", OK), save(4, 2, 3, "A", OK)}, Options{}),
		"a Replace has no range":                     CheckSessions([]Op{replaced(4, 0, 1, "", "X", OK)}, Options{}),
		"a Save and a Replace have one entry":        CheckSessions([]Op{save(4, 0, 1, "A", OK), replaced(4, 2, 3, "A", "A", OK)}, Options{}),
		"a Save does not say what":                   CheckSessions([]Op{save(4, 0, 1, "", OK)}, Options{}),
		"one that is ok has not returned":            CheckSessions([]Op{save(4, 5, 1, "A", OK)}, Options{}),
	} {
		if v.Err() == nil {
			t.Error(name)
		}
	}
}

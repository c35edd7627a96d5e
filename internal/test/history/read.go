package history

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// read reads what one [Recorder] wrote. The last line may be torn: the process was killed while it
// wrote.
func read(path string) ([]Op, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var (
		ops     []Op
		at      = make(map[int]int) // number of an operation to its index
		process string
		lines   = bufio.NewReader(in)
	)
	for n := 1; ; n++ {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break // leave out an unfinished line
		} else if err != nil {
			return nil, err
		}
		var l line
		if err := json.Unmarshal(bytes.TrimSpace(text), &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		switch {
		case l.Process != "":
			process = l.Process
		case process == "":
			return nil, fmt.Errorf("line %d: the first line does not name the process", n)
		case l.Op != nil:
			at[l.Number] = len(ops)
			ops = append(ops, *l.Op)
			ops[len(ops)-1].Process = process
		case l.Ended != nil:
			i, ok := at[l.Number]
			if !ok {
				return nil, fmt.Errorf("line %d: operation %d has returned, and was not called", n, l.Number)
			}
			ops[i] = *l.Ended
			ops[i].Process = process
		}
	}
	return ops, nil
}

// ReadFiles merges the files of several processes of one machine, in the order of the calls.
func ReadFiles(paths ...string) ([]Op, error) {
	var all []Op
	for _, path := range paths {
		ops, err := read(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, ops...)
	}
	slices.SortStableFunc(all, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	return all, nil
}

package chart

import (
	"bytes"
	"strings"
	"testing"
)

const samples = `seconds,phase,heap_bytes,goroutines,redis_bytes,redis_keys
30,warm-up,2097152,60,1048576,1500
60,warm-up,3145728,66,2097152,1600
120,measured,3145728,66,2097152,1600
600,measured,3145728,66,2097152,1600
`

func TestSoak(t *testing.T) {
	svg, err := Soak(strings.NewReader(samples))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"Go heap in use, MiB", "Goroutines", "Memory of Redis, MiB", "Keys in Redis", "minutes; the shaded ones are the warm-up",
		"0", "3", "10", "1,000",
	} {
		if !bytes.Contains(svg, []byte(">"+text+"<")) {
			t.Errorf("it does not say %q", text)
		}
	}
}

func TestSoak_refusesWhatIsNoSoak(t *testing.T) {
	for name, file := range map[string]string{
		"nothing":          "",
		"one sample":       strings.Join(strings.SplitAfter(samples, "\n")[:2], ""),
		"no phase":         strings.Replace(samples, "phase", "time", 1),
		"no heap":          strings.Replace(samples, "heap_bytes", "stack_bytes", 1),
		"a text":           strings.Replace(samples, "3145728", "much", 1),
		"a row that ended": samples + "700,measured",
	} {
		if svg, err := Soak(strings.NewReader(file)); err == nil {
			t.Errorf("%s: %d bytes were drawn", name, len(svg))
		}
	}
}

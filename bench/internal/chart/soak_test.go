package chart

import (
	"bytes"
	"strings"
	"testing"
)

const samples = `seconds,phase,operations,heap_bytes,goroutines,open_files,redis_bytes,redis_lasting_bytes,redis_keys,redis_lasting_keys,redis_clients
30,warm-up,15000,2097152,60,40,1048576,1048576,1500,500,30
60,warm-up,30000,3145728,66,40,2097152,1048576,1600,538,30
120,measured,60000,3145728,66,40,2097152,1048576,1600,538,30
600,measured,300000,3145728,66,40,2097152,1048576,1600,538,30
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

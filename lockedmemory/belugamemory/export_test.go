package belugamemory

import (
	"reflect"
	"slices"
	"strings"

	"github.com/lookatitude/beluga-ai/v2/core"
)

// Codes returns the codes of the sentinels, by their names, for a Save without a turn ID.
func Codes() map[string]core.ErrorCode {
	codes := make(map[string]core.ErrorCode)
	for name, s := range sentinels {
		codes[name] = s.code
	}
	return codes
}

// OptionNames returns the names of the options of a configuration.
func OptionNames() []string {
	names := []string{"observer"}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[options]()) {
		names = append(names, field.Tag.Get("json"))
	}
	slices.Sort(names)
	return names
}

func optionNames() string { return strings.Join(OptionNames(), ", ") }

package belugamemory

import (
	"strings"

	"github.com/lookatitude/beluga-ai/v2/core"
)

// Codes are those of the sentinels, by their names, for a Save without a turn ID.
func Codes() map[string]core.ErrorCode {
	codes := make(map[string]core.ErrorCode)
	for name, s := range sentinels {
		codes[name] = s.code
	}
	return codes
}

// OptionNames are those of a configuration.
func OptionNames() []string { return strings.Split(optionNames(), ", ") }

func optionNames() string { return names(new(configuration).options()) }

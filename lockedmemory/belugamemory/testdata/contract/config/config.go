// Package config holds the configuration of a provider.
package config

import "time"

type ProviderConfig struct {
	Provider string         `json:"provider" required:"true"`
	APIKey   string         `json:"api_key"`
	Model    string         `json:"model"`
	BaseURL  string         `json:"base_url"`
	Timeout  time.Duration  `json:"timeout" default:"30000000000"`
	Options  map[string]any `json:"options"`
}

// GetOption converts nothing.
func GetOption[T any](cfg ProviderConfig, key string) (T, bool) {
	value, ok := cfg.Options[key].(T)
	return value, ok
}

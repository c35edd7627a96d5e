// Package history checks histories of real runs.
package history

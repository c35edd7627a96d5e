package doctest

import (
	"testing"

	"github.com/belugalock/belugalock/internal/leaks"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

package core

import (
	"context"
	"time"
)

// HealthState is how well a component works.
type HealthState string

const (
	HealthHealthy   HealthState = "healthy"
	HealthDegraded  HealthState = "degraded"
	HealthUnhealthy HealthState = "unhealthy"
)

// HealthStatus is a state and when it was seen.
type HealthStatus struct {
	Status    HealthState
	Message   string
	Timestamp time.Time
}

// Lifecycle is a component that is started and stopped.
type Lifecycle interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Health() HealthStatus
}

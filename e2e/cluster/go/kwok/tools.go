//go:build tools

// Package tools names the command that is built, so that go.mod and go.sum cover all it needs.
package tools

import (
	_ "sigs.k8s.io/kwok/cmd/kwok"
)

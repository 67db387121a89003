//go:build tools

// Package tools names the program that is built, so that go.mod keeps what it needs.
package tools

import _ "helm.sh/helm/v4/cmd/helm"

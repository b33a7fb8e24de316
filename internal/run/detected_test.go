//go:build race

package run

func init() { detected = true }

package main

import "context"

func (a *app) runNeedle(ctx context.Context, f *runFlags) error { return usagef("--needle") }

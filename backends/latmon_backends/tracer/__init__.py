"""The on-demand stage tracer: demand, budget, controller."""

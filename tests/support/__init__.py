"""What tests and benchmarks both stand on."""

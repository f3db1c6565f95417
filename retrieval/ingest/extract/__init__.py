"""From chunks of content to facts, by a language model or by rules."""

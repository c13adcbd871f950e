"""Made-up tickets with known answers: what the demo checkpoint learns from and is measured on."""

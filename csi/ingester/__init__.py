"""What an event is: the contract, its signature, its routing, and the configuration."""

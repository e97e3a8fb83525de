"""HTTP for agents and operators: flags, health, pages."""

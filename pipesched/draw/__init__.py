"""Pictures of a timeline: terminal text, notebook HTML, matplotlib."""

"""Who runs where: rules, scores and searches."""

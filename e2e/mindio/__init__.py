"""The MindIO simulator, a laboratory around any MindIO package, and the conformance vectors."""

// Functions without a body need such a file; the runtime has those.

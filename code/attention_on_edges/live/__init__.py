"""What a page computes and draws by itself, in JavaScript, and the Python that puts it there."""

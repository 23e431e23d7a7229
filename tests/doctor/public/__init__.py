"""Attention as public repositories write it, by kind of repository: what is healthy, and how it breaks.

Each file defines modules and functions with the names and shapes of a family of repositories, written here
anew. `BROKEN` lists `(name, code, old, new)`: the source of `name` with `old` replaced by `new` has the
mistake `code`. `OTHER` names what is no softmax of q·k: it must be said to be another form, and gets no
clean bill. `OPTIONS` holds what a caller would say about one of them.
"""

"""The terminal interface. The only part of gpudiag that imports textual, and only once it is opened.

`sources` deliver frames, `state` holds what the person wants to see, `screens` are pure functions from a view to rows,
and `app` puts rows on the terminal. What looks at a server is a child (`collector`), so that nothing here ever waits.
"""

"""Where a read is worked on, by one thread at a time.

Python runs one thread at a time, and every call into SQLite gives way to another that wants to run: ten reads that come
in together hand the interpreter to and fro, which costs more than their work. Here they take turns. Nobody waits for
the network, or for another lock than the database's, while he has the desk.
"""

import threading

DESK = threading.RLock()

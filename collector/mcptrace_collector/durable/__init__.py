"""What must outlive the process: the receive journal, the queues, the audit outbox, the ledger.

One door: ``Store``.  Everything in it is one SQLite database, so that one commit can make
several facts true together (docs/adr/0002-where-durability-begins.md).
"""

from .database import Balance, JournalRecord, StoreLocked
from .store import Store, StoreUnusable

__all__ = ["Balance", "JournalRecord", "Store", "StoreLocked", "StoreUnusable"]

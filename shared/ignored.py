"""Names of files and folders that are no documents, unless the settings say otherwise. Upper and lower case are alike."""

from __future__ import annotations

# A file that is being written, a lock, or what a desktop leaves behind.
TEMPORARY_NAMES = (
    "~$*",  # Microsoft Office, while the document is open
    ".~lock.*#",  # LibreOffice, likewise
    ".#*",  # Emacs' lock
    "#*#",  # Emacs' autosave
    "*~",
    "*.tmp",
    "*.temp",
    "*.part",
    "*.partial",
    "*.filepart",
    "*.crdownload",
    "*.download",
    "*.opdownload",
    "*.aria2",
    "*.!qb",
    ".*.sw?",  # Vim's swap files
    ".*.swpx",
    "*.kate-swp",
    ".goutputstream-*",
    ".nfs????*",  # NFS keeps an open, deleted file under such a name
    ".fuse_hidden*",
    ".ds_store",
    "._*",  # macOS keeps attributes there on foreign file systems
    "thumbs.db",
    "ehthumbs.db",
    "desktop.ini",
)
IGNORED_FOLDERS = (
    # version control
    ".git",
    ".hg",
    ".svn",
    ".bzr",
    ".jj",
    "_darcs",
    "cvs",
    # wastebaskets, snapshots and other parts of a system
    ".trash",
    ".trash-*",
    ".trashes",
    "$recycle.bin",
    "system volume information",
    "lost+found",
    ".spotlight-v100",
    ".fseventsd",
    ".temporaryitems",
    ".snapshot",
    ".snapshots",
    "@eadir",
    "#recycle",
    ".stfolder",
    ".stversions",
    # what programs make and can make again
    "node_modules",
    "__pycache__",
    ".venv",
    ".tox",
    ".nox",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
)
# Secrets that have no business in a search index. No setting takes them in by accident; a rule `!.env` of the folder does.
SECRET_NAMES = (".env", ".env.*", ".netrc", ".pgpass", ".htpasswd", "id_rsa", "id_ecdsa", "id_ed25519")
SECRET_FOLDERS = (".ssh", ".gnupg", ".aws", ".kube")

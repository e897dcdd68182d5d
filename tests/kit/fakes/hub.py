"""A hub of models and datasets on loopback, as its client reads it; files with ranges."""

import json
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from kit.engines.http_servers import Handler

_COMMIT = "0" * 40


class FileHandler(Handler):
    """Serves ``files`` by path, with ranges."""

    files: ClassVar[dict[str, bytes]] = {}

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.send_file(unquote(urlsplit(self.path).path))

    def send_file(self, name: str, **headers: str) -> None:
        content = self.files.get(name, b"")
        wanted = self.headers.get("Range", "")
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last or len(content)) + 1] if wanted else content
        if wanted:
            headers["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
        self.send_response(404 if name not in self.files else 206 if wanted else 200)
        for header, value in {**headers, "Accept-Ranges": "bytes", "Content-Length": str(len(part))}.items():
            self.send_header(header, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(part)


class HubHandler(FileHandler):
    """Serves ``files``, named ``{models|datasets}/ORGANISATION/NAME/FILE``."""

    def do_GET(self) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        if parts[0] == "api":
            self.reply_json(self._description("/".join(parts[1:4]), is_tree="tree" in parts[4:5]))
        else:
            kind, organisation, name, _, _, *file = parts if parts[0] == "datasets" else ["models", *parts]
            self.send_file("/".join([kind, organisation, name, *file]), ETag='"1"', **{"X-Repo-Commit": _COMMIT})

    def reply_json(self, document: object) -> None:
        status, missing = (200, {}) if document else (404, {"X-Error-Code": "RepoNotFound"})
        self.reply(json.dumps(document).encode(), status, **{"Content-Type": "application/json"}, **missing)

    def _description(self, repository: str, is_tree: bool) -> object:
        """Return its files, or what it is; nothing if there is none."""
        names = [name for name in self.files if name.startswith(f"{repository}/")]
        if not names:
            return {}
        if is_tree:
            sizes = {name.removeprefix(f"{repository}/"): len(self.files[name]) for name in names}
            return [{"type": "file", "path": name, "size": size, "oid": _COMMIT} for name, size in sizes.items()]
        return {"id": repository.partition("/")[2], "sha": _COMMIT, "siblings": [], "private": False}

"""The log of Scrapy crawling a troublesome site.

    python -m benchmarks.located.scrapy_crawl FOLDER

Needs `pip install scrapy`. The site runs in this process: pages that redirect, fail, close the
connection, are slow, large, empty or forbidden by `robots.txt`. Several spiders crawl it with
different settings.
"""

from __future__ import annotations

import argparse
import logging
import random
import socket
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.exceptions import CloseSpider, DropItem, IgnoreRequest, NotConfigured
from scrapy.spiders import SitemapSpider

from benchmarks.located.labels import write_set
from benchmarks.located.python_logging import Located

PAGES = 150
ROBOTS = "User-agent: *\nDisallow: /private\nSitemap: /sitemap.xml\nCrawl-delay: x\n"


class Site(BaseHTTPRequestHandler):
    """Answers by the first part of the path."""

    def do_GET(self) -> None:
        """Answer as the path says."""
        _, kind, *rest = f"{self.path.partition('?')[0]}/".split("/")
        number = int(rest[0]) if rest and rest[0].isdigit() else 0
        if kind == "robots.txt":
            self._send(200, ROBOTS, "text/plain")
        elif kind == "sitemap.xml":
            urls = "".join(f"<url><loc>{self._url(f'page/{n}')}</loc></url>" for n in range(9))
            self._send(200, f"<urlset>{urls}</urlset>", "text/xml")
        elif kind == "moved":
            self._send(301, "", location=self._url(f"page/{number}"))
        elif kind == "loop":
            self._send(302, "", location=self._url(f"loop/{number + 1}"))
        elif kind == "status":
            self._send(number, "no")
        elif kind == "cut":
            self.close_connection = True
            self.connection.close()
        elif kind == "short":
            self._send(200, "x", length=1_000)
            self.close_connection = True
        elif kind == "slow":
            time.sleep(1.5)
            self._send(200, "late")
        elif kind == "large":
            self._send(200, "x" * 300_000)
        elif kind == "meta":
            self._send(200, f'<meta http-equiv="refresh" content="0;url=/page/{number}">')
        elif kind == "cookie":
            self._send(200, "yes", cookie=f"session=a{number}; path=/")
        else:
            chooser = random.Random(number)
            links = "".join(f'<a href="{link}">x</a>' for link in self._links(chooser))
            self._send(200, f"<html><title>{number}</title>{links}</html>")

    def _links(self, chooser: random.Random) -> Iterator[str]:
        number = chooser.randrange(PAGES)
        yield from (f"/page/{chooser.randrange(PAGES)}" for _ in range(4))
        yield f"/status/{chooser.choice([400, 403, 404, 408, 429, 500, 502, 503, 504])}?n={number}"
        yield (
            chooser.choice(["/cut", "/short", "/slow", "/large", "/meta", "/cookie"]) + f"/{number}"
        )
        yield chooser.choice(["/moved", "/loop", "/private"]) + f"/{number}"
        yield chooser.choice(
            [
                f"http://other-{number}.example/", "mailto:a@b.example", "javascript:x()",
                f"ftp://127.0.0.1:1/{number}", "http://[::bad", f"file:///missing/{number}",
                f"data:,{number}", f"http://127.0.0.1:1/refused/{number}", f"s3://bucket/{number}",
            ]
        )  # fmt: skip

    def _url(self, path: str) -> str:
        return f"http://{self.headers['Host']}/{path}"

    def _send(
        self, status: int, text: str, kind: str = "text/html", *, length: int | None = None,
        location: str = "", cookie: str = "",
    ) -> None:  # fmt: skip
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in (("Location", location), ("Set-Cookie", cookie)):
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 -- the server's name for it
        """Write nothing."""


class Server(ThreadingHTTPServer):
    """Serves the site and does not mind when a client goes away."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Write nothing."""


class Pipeline:
    """Drops items, and fails over some."""

    def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        """Take an item, drop it, or fail."""
        if item["n"] % 5 == 0:
            raise DropItem(f"price of {item['n']} is missing")
        if item["n"] % 7 == 0:
            raise ValueError(f"cannot store {item['n']}")
        return item


class Middleware:
    """Ignores some responses."""

    def process_spider_input(self, response: scrapy.http.Response) -> None:
        """Let a response pass or not."""
        if len(response.body) % 97 == 0:
            raise IgnoreRequest("not wanted")


class Missing:
    """An extension that is not configured."""

    def __init__(self) -> None:
        raise NotConfigured("no key is set")


class Pages(scrapy.Spider):  # type: ignore[misc]  # no types here
    """Follows all links."""

    name = "pages"
    site = ""

    def start_requests(self) -> Iterator[Any]:
        """Begin in several places; before Scrapy 2.13."""
        for number in range(0, PAGES, 10):
            yield scrapy.Request(f"{self.site}/page/{number}")

    async def start(self) -> AsyncIterator[scrapy.Request]:
        """Begin in several places."""
        for request in self.start_requests():
            yield request

    def parse(self, response: scrapy.http.Response) -> Iterator[Any]:
        """Yield an item, and all links; fail sometimes."""
        number = len(response.body)
        if number % 11 == 0:
            raise RuntimeError(f"parser broke at {number}")
        yield {"n": number, "url": response.url}
        if number % 13 == 0:
            yield 4711
        for link in response.css("a::attr(href)").getall():
            try:
                yield response.follow(link)
            except ValueError as error:
                self.logger.warning("link %s: %s", link, error)
        if number % 101 == 0:
            raise CloseSpider("enough")


class Sitemap(SitemapSpider):  # type: ignore[misc]  # no types here
    """Reads sitemaps, and one that is none."""

    name = "sitemap"

    def parse(self, response: scrapy.http.Response) -> Iterator[Any]:
        """Yield an item."""
        yield {"n": len(response.body)}


VARIANTS: tuple[dict[str, Any], ...] = (
    {"ROBOTSTXT_OBEY": True, "AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_DEBUG": True},
    {"COOKIES_DEBUG": True, "REDIRECT_MAX_TIMES": 3, "METAREFRESH_ENABLED": True},
    {"HTTPCACHE_ENABLED": True, "DOWNLOAD_MAXSIZE": 200_000, "DOWNLOAD_WARNSIZE": 100_000},
    {"DEPTH_LIMIT": 2, "DEPTH_STATS_VERBOSE": True, "DUPEFILTER_DEBUG": True},
    {"CLOSESPIDER_ITEMCOUNT": 20, "RETRY_ENABLED": False, "REFERER_ENABLED": False},
    {"CLOSESPIDER_ERRORCOUNT": 3, "LOG_FORMATTER": "scrapy.logformatter.LogFormatter"},
    {"CLOSESPIDER_TIMEOUT": 3, "CONCURRENT_REQUESTS": 2, "MEMDEBUG_ENABLED": True},
    {"URLLENGTH_LIMIT": 32, "SCHEDULER_DEBUG": True, "HTTPERROR_ALLOW_ALL": True},
)
COMMON: dict[str, Any] = {
    "LOG_ENABLED": False, "DOWNLOAD_TIMEOUT": 1, "RETRY_TIMES": 1, "LOGSTATS_INTERVAL": 1,
    "ITEM_PIPELINES": {Pipeline: 1}, "SPIDER_MIDDLEWARES": {Middleware: 1},
    "EXTENSIONS": {Missing: 1}, "DNS_TIMEOUT": 1, "TELNETCONSOLE_PORT": [6100, 6180],
    "CLOSESPIDER_PAGECOUNT": 700,
}  # fmt: skip


def main() -> None:
    """Write `Scrapy.tsv.gz` and its templates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write the set")
    parser.add_argument("--port", type=int, default=8123)
    options = parser.parse_args()
    site = Server(("127.0.0.1", options.port), Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    located = Located("scrapy", "py", "protego")
    logging.root.addHandler(located)
    logging.root.setLevel(logging.DEBUG)
    url = f"http://127.0.0.1:{options.port}"
    with tempfile.TemporaryDirectory() as name:
        process = CrawlerProcess(COMMON, install_root_handler=False)
        for number, settings in enumerate(VARIANTS):
            spider = type(f"Pages{number}", (Pages,), {
                "name": f"pages-{number}", "site": url, "allowed_domains": ["127.0.0.1"],
                "custom_settings": {**settings, "HTTPCACHE_DIR": name,
                                    "FEEDS": {f"{name}/{number}.json": {"format": "json"}}},
            })  # fmt: skip
            process.crawl(spider)
        process.crawl(Sitemap, sitemap_urls=[f"{url}/robots.txt", f"{url}/page/1"])
        process.start()
        lines = (
            line._replace(text=line.text.replace(name, "/var/cache/crawl"))
            for line in located.lines
        )
        print(write_set(options.folder, "Scrapy", lines, [socket.gethostname()]), "lines")
    site.shutdown()


if __name__ == "__main__":
    main()

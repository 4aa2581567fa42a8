"""Modules that need what the project does not install are not looked into for doctests."""

collect_ignore = ["dask_cluster.py", "scrapy_crawl.py"]

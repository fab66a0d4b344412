"""From message records to what a link's model needs to know, window by window.

    records ─▶ crossings: messages that went over a link, with who went before them
                 ─▶ busy: how long the link took for how much, while it always had something to send
                 ─▶ levels: work that came to each level, and how long each category waited

All of it is sums, so that one row for each window, link, level and category is enough to fit the
link and to predict its waits (`fitting`), whatever its rate and overhead turn out to be: moments of
the work are kept by powers of bytes (b) and of packets (n), as they are before either is known.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from headgate.contract.records import Outcome, Rank
from headgate.core.link import HEADERS, NORMAL_LEVEL
from headgate.pipeline import sketches
from headgate.pipeline.fitting import BUSY

LONG_RUN = 8
"""Messages that a busy run has at least: of shorter ones, the ends are most of it."""
STALLED = 0.5
"""A run that was slower than this part of the link's median was held up by something else."""

POWERS = ("b", "n", "bb", "bn", "nn", "bbb", "bbn", "bnn", "nnn")

KEYS = ("link", "start")


def crossings(records: DataFrame, window: str) -> DataFrame:
    """What went over links: level, size, wait, and what of the same publication went before.

    Copies of one publication arrive together, and are sent in the order of their levels. Where
    records are a sample, nobody knows who went before whom: then each counts as alone.
    """
    level = (
        sf.when(sf.col("class") == Rank.URGENT, 0)
        .when(sf.col("class") == Rank.CRITICAL, 1)
        .otherwise(sf.col("priority") + NORMAL_LEVEL)
    )
    sent = records.where(
        (sf.col("outcome") == Outcome.SENT) & ~sf.col("retained") & (sf.col("link") != "")
    ).select(
        "broker",
        "sequence",
        "link",
        "category",
        "topic",
        level.cast("int").alias("level"),
        "arrived",
        sf.unix_micros("at").alias("at"),
        sf.window("arrived", window).alias("_window"),
        sf.col("messages").cast("double").alias("n"),
        sf.col("bytes").cast("double").alias("b"),
        "waited_ms",
        sf.coalesce("weight", sf.lit(1.0)).alias("weight"),
    )
    publication = Window.partitionBy("broker", "link", "topic", "arrived")
    before = publication.orderBy("level", "sequence").rowsBetween(Window.unboundedPreceding, -1)

    def ahead(name: str) -> Column:
        found = sf.coalesce(sf.sum(name).over(before), sf.lit(0.0))
        return sf.when(sf.col("weight") > 1, 0.0).otherwise(found)

    return sent.withColumns({"ahead_b": ahead("b"), "ahead_n": ahead("n")}).select(
        "*", sf.col("_window.start").alias("start"), sf.col("_window.end").alias("end")
    )


def levels(crossed: DataFrame) -> DataFrame:
    """Sums for each window, link, level and category.

    `w_…` are moments of the messages' own work. `x_…` are what each message adds to the moments of
    its publication's work at its level and above: (before + own)^k - before^k. Summed over the
    levels up to one, they are the moments of all that publications bring to these levels.
    `a_…` are moments of the work ahead of a message in its own publication.
    """
    n, b, weight = sf.col("n"), sf.col("b"), sf.col("weight")
    each = b / n
    # A run of n messages: the one in the middle has half of the others before it.
    own_n = (n - 1) / 2
    ahead_b, ahead_n = sf.col("ahead_b") + own_n * each, sf.col("ahead_n") + own_n
    after_b, after_n = sf.col("ahead_b") + b, sf.col("ahead_n") + n
    sums = {
        **{f"w_{p}": weight * n * power(p, each, sf.lit(1.0)) for p in POWERS},
        **{
            f"x_{p}": weight
            * (power(p, after_b, after_n) - power(p, sf.col("ahead_b"), sf.col("ahead_n")))
            for p in POWERS[2:]
        },
        **{f"a_{p}": weight * n * power(p, ahead_b, ahead_n) for p in POWERS[:5]},
        "waited": weight * n * sf.col("waited_ms"),
    }
    return crossed.groupBy(*KEYS, "end", "level", "category").agg(
        *(sf.sum(value).alias(name) for name, value in sums.items()),
        sf.max("weight").alias("sampled"),
    )


def power(name: str, b: Column, n: Column) -> Column:
    """`bbn` is b^2 n."""
    product = sf.lit(1.0)
    for letter in name:
        product = product * (b if letter == "b" else n)
    return product


def responses(crossed: DataFrame) -> DataFrame:
    """What each category of a link experienced in each window: mean and 99th percentile."""
    weight = sf.col("weight") * sf.col("n")
    by_bucket = crossed.groupBy(
        *KEYS, "category", sketches.bucket(sf.col("waited_ms")).alias("bucket")
    ).agg(sf.sum(weight).alias("n"), sf.sum(weight * sf.col("waited_ms")).alias("waited"))
    return (
        by_bucket.groupBy(*KEYS, "category")
        .agg(
            sf.sum("n").alias("messages"),
            sf.try_divide(sf.sum("waited"), sf.sum("n")).alias("mean_ms"),
            sf.array_sort(sf.collect_list(sf.struct("bucket", "n"))).alias("_sketch"),
        )
        .withColumn("p99_ms", sketches.quantile(sf.col("_sketch"), 0.99))
        .drop("_sketch")
    )


def busy(crossed: DataFrame) -> DataFrame:
    """How long the link took for how much, summed over the busy runs of each window.

    A run goes on as long as the next message to leave had come before the last one left: the link
    had something to send all the time. From the first departure to the last, it sent what lies
    between them: all but the first message if messages leave when they have been sent (`e_…`), all
    but the last if they leave when it begins (`s_…`, as in the broker, which sends what its pace
    has earned). Which it is, is seen from which fits better.
    """
    line = Window.partitionBy("broker", "link", "start").orderBy("at", "sequence")
    idle = sf.lag("at").over(line) < sf.unix_micros("arrived")
    place = sf.struct("at", "sequence")
    runs = (
        crossed.where(sf.col("weight") <= 1)
        .withColumn("_new", sf.coalesce(idle, sf.lit(True)).cast("int"))
        .withColumn("_run", sf.sum("_new").over(line.rowsBetween(Window.unboundedPreceding, 0)))
        .groupBy("broker", *KEYS, "_run")
        .agg(
            ((sf.max("at") - sf.min("at")) / 1e6).alias("t"),
            (sf.sum("b") - sf.min_by("b", place)).alias("e_b"),
            (sf.sum("n") - sf.min_by("n", place)).alias("e_n"),
            (sf.sum("b") - sf.max_by("b", place)).alias("s_b"),
            (sf.sum("n") - sf.max_by("n", place)).alias("s_n"),
        )
        .where((sf.least("e_n", "s_n") >= LONG_RUN) & (sf.col("t") > 0))
        .withColumn("_speed", (sf.col("e_b") + HEADERS * sf.col("e_n")) / sf.col("t"))
    )
    usual = runs.groupBy("link").agg(sf.percentile_approx("_speed", 0.5).alias("_usual"))

    def value(letter: str, when: str) -> Column:
        known = {"t": sf.col("t"), "1": sf.lit(1.0)}
        return known[letter] if letter in known else sf.col(f"{when}_{letter}")

    return (
        runs.join(sf.broadcast(usual), "link")
        .where(sf.col("_speed") >= STALLED * sf.col("_usual"))
        .groupBy(*KEYS)
        .agg(
            sf.count("*").alias("runs"),
            *(
                sf.sum(value(pair[0], when) * value(pair[1], when) / sf.col(f"{when}_n")).alias(
                    f"{when}_{pair}"
                )
                for when in ("e", "s")
                for pair in BUSY
            ),
        )
    )


def known_of(crossed: DataFrame, most: int) -> DataFrame:
    """All of it in one table, for the newest `most` windows of each link."""
    newest = Window.partitionBy("link").orderBy(sf.desc("start"))
    worked = levels(crossed).withColumn("_age", sf.dense_rank().over(newest))
    return (
        worked.where(sf.col("_age") <= most)
        .drop("_age", "waited")
        .join(responses(crossed), [*KEYS, "category"])
        .join(busy(crossed), list(KEYS), "left")
    )

-- What does Debian stand on?
--
-- 57,802 packages that need or are needed, 243,517 dependencies between them: a sparse matrix. PageRank
-- asks where one ends up who follows dependencies at random, and now and then starts anew at any package.
--
--     cargo run --release -- examples/packages.sql

CREATE VIEW dependencies AS
    SELECT package, depends_on FROM 'examples/data/dependencies.parquet' WHERE kind = 'depends';

-- Four packages are listed in two versions, hence DISTINCT.
CREATE VIEW packages AS SELECT DISTINCT package, section FROM 'examples/data/packages.parquet';

-- 1. The graph: a cell is 1 where the package of its row depends on the package of its column. Rows and
--    columns have the same labels, the packages on either side.
CREATE MATRIX links AS SELECT package, depends_on FROM dependencies NODES BY package, depends_on;

DESCRIBE MATRIX links;

-- 2. A step of the walk: from each package to any of its dependencies, all equally likely.
CREATE MATRIX VIEW step = t(normalize_rows(links, 1));

-- 3. PageRank. 85 of 100 times the walk takes a step, else it starts anew. At a package without
--    dependencies, where its row is all zero, it can only start anew: that is the share of r which
--    step @ r loses. The plan finds step @ r twice and computes it once, and the transpose but once for all rounds.
CREATE MATRIX importance = ITERATE(
    r => full(nrow(step), 1, 1.0 / nrow(step)),
    0.85 * (step @ r + (1 - sum(step @ r)) / nrow(step)) + 0.15 / nrow(step),
    times => 300,
    until => sum(abs(r - prior(r))) < 1e-13
);

-- 4. The ten most important packages, by name, beside how many depend on them directly. Being needed by
--    few is enough if those are needed by all: gcc-12-base is what libgcc-s1 needs, and that libc6.
CREATE VIEW ranks AS
    SELECT package, rank, section
    FROM MATRIX(importance) AS pagerank(package, rank) LEFT JOIN packages USING (package);

SELECT ranks.package, round(ranks.rank, 6) AS score, count(*) AS direct_dependents
FROM ranks JOIN dependencies ON dependencies.depends_on = ranks.package
GROUP BY ranks.package, ranks.rank
ORDER BY ranks.rank DESC
LIMIT 10;

-- 5. Which parts of the archive carry the rest?
CREATE VIEW sections AS
    SELECT section, count(*) AS packages, sum(rank) AS share FROM ranks GROUP BY section;

SELECT section, packages, round(100 * share, 2) AS percent
FROM sections
ORDER BY share DESC
LIMIT 8;

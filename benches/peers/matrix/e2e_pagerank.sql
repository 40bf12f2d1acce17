-- cases: e2e_pagerank
CREATE VIEW edges AS SELECT src, dst FROM '{data}/edges.parquet';
-- timed
CREATE OR REPLACE MATRIX links WITH (duplicates = 'sum') AS
    SELECT src, dst FROM edges NODES BY src, dst;
SELECT rank
FROM MATRIX(ITERATE(
    r => full(nrow(links), 1, 1.0 / nrow(links)),
    0.85 * (t(normalize_rows(links, 1)) @ r) + 0.15 / nrow(links),
    times => 20)) AS ranks(node, rank)
ORDER BY rank DESC, node
LIMIT 10;
-- checksum answer

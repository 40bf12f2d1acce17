-- cases: e2e_cosine
CREATE VIEW emb AS SELECT * FROM '{data}/emb.parquet';
CREATE MATRIX VIEW asked = normalize_rows((SELECT id, v FROM emb WHERE id < 100 ROWS BY id));
CREATE MATRIX VIEW stored = normalize_rows((SELECT id, v FROM emb ROWS BY id));
-- timed
SELECT similarity FROM (
    SELECT id, similarity, row_number() OVER (PARTITION BY id ORDER BY similarity DESC) AS place
    FROM ENTRIES(asked @ t(stored)) AS s(id, other, similarity))
WHERE place <= 10
ORDER BY id, place;
-- checksum answer

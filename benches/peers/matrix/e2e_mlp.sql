-- cases: e2e_mlp
CREATE MATRIX w1 FROM '{data}/{case}.w1.npy';
CREATE MATRIX column_b1 FROM '{data}/{case}.b1.npy';
CREATE MATRIX b1 = t(column_b1);
CREATE MATRIX w2 FROM '{data}/{case}.w2.npy';
CREATE MATRIX VIEW d = (SELECT CAST(grp AS REAL) AS grp, * EXCEPT (grp) FROM '{data}/score.parquet');
-- timed
SELECT grp, avg(CAST(score AS DOUBLE)) AS score
FROM MATRIX(hstack(d[:, 'grp'], greatest(d[:, 'f0':'f31'] @ w1 + b1, 0) @ w2)) AS scored(row, grp, score)
GROUP BY grp
ORDER BY grp;
-- checksum answer

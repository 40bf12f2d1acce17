-- cases: e2e_linreg
CREATE MATRIX VIEW d = (
    SELECT x0, x1, x2, x3, x4, x5, x6, z0, z1, z2, y
    FROM '{data}/fact.parquet' JOIN '{data}/dim.parquet' USING (dim_id)
    WHERE grp < 8
);
CREATE MATRIX VIEW x = d[:, 'x0':'z2'];
CREATE MATRIX VIEW y = d[:, 'y'];
-- timed
SELECT term, value FROM MATRIX(solve(t(x) @ x, t(x) @ y)) AS w(term, value) ORDER BY term;
-- checksum answer

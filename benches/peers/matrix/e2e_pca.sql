-- cases: e2e_pca
CREATE MATRIX VIEW x = (SELECT * FROM '{data}/wide.parquet');
CREATE MATRIX VIEW centred = x - col_means(x);
-- timed
SELECT value FROM ENTRIES(
    col_means((centred @ eigh(t(centred) @ centred).vectors[:, 191:200]) ^ 2)) AS variance(i, j, value)
ORDER BY j DESC;
-- checksum answer

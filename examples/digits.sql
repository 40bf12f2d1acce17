-- Reading handwriting with linear algebra.
--
-- 1,797 handwritten digits, each an 8x8 picture: 64 numbers from 0 to 16, stored as a list column.
--
--     cargo run --release -- examples/digits.sql

CREATE VIEW digits AS SELECT * FROM 'examples/data/digits.parquet';

-- 1. A list column is a row of the matrix. The file has 32-bit pixels; the arithmetic is to be exact.
CREATE MATRIX images WITH (dtype = 'float64') AS SELECT id, pixels FROM digits ROWS BY id;

-- The first of them. Do you see it?
SELECT * FROM MATRIX(reshape(images[1, :], 8, 8));

-- 2. Principal components: the singular value decomposition of the centred images. The squares of the
--    singular values are what each component explains of the variance.
CREATE MATRIX VIEW centred = images - col_means(images);
CREATE MATRIX variances = svd(centred).s ^ 2 / sum(svd(centred).s ^ 2);

CREATE VIEW explained AS
    SELECT component, share, sum(share) OVER (ORDER BY component) AS total
    FROM MATRIX(variances) AS v(component, share);

SELECT component, round(100 * share, 2) AS percent, round(100 * total, 2) AS percent_so_far
FROM explained
ORDER BY component
LIMIT 10;

-- 3. Each image in two numbers instead of 64: its place along the first two components. A component's sign
--    is arbitrary, so each is turned such that its loadings sum to more than zero.
CREATE MATRIX loadings = t(svd(centred).vt[1:2, :]);
CREATE MATRIX places = centred @ (loadings * sign(col_sums(loadings)));

CREATE VIEW centres AS
    SELECT digit, count(*) AS images, avg(along) AS first, avg(across) AS second
    FROM MATRIX(places) AS place(id, along, across) JOIN digits USING (id)
    GROUP BY digit;

SELECT digit, images, round(first, 2) AS first, round(second, 2) AS second FROM centres ORDER BY digit;

-- 4. Which images look most like the first one? The cosine of the angle between two images is the product of
--    their rows, once those have length one.
CREATE MATRIX VIEW unit = normalize_rows(images);

CREATE VIEW similar AS
    SELECT id, digit, similarity
    FROM MATRIX(unit @ t(unit[1, :])) AS s(id, similarity) JOIN digits USING (id);

SELECT id, digit, round(similarity, 6) AS similarity FROM similar ORDER BY similarity DESC LIMIT 6;

-- 5. So let every image be read as the digit of the one most like it, itself left out. How many are right?
CREATE MATRIX nearest = row_argmax(unit @ t(unit) - 2 * eye(nrow(unit)));

CREATE VIEW readings AS
    SELECT image.id, image.digit, other.digit AS reading
    FROM MATRIX(nearest) AS n(id, other_id)
    JOIN digits image ON image.id = n.id
    JOIN digits other ON other.id = n.other_id;

SELECT digit, count(*) AS images, sum(CASE WHEN digit = reading THEN 1 ELSE 0 END) AS read_well
FROM readings
GROUP BY digit
ORDER BY digit;

-- cases: solve_2000
CREATE MATRIX a FROM '{data}/{case}.a.npy';
CREATE MATRIX b FROM '{data}/{case}.b.npy';
-- timed
CREATE OR REPLACE MATRIX c = solve(a, b);
-- checksum dense c

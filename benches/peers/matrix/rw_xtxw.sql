-- cases: rw_xtxw
CREATE MATRIX x FROM '{data}/{case}.x.npy';
CREATE MATRIX w FROM '{data}/{case}.w.npy';
-- timed
CREATE OR REPLACE MATRIX r = (t(x) @ x) @ w;
-- checksum dense r

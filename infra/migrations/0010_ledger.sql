-- (to be filled)
SELECT 1;

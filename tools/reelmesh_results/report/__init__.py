"""What tools/reelmesh-report is made of: numbers of a job, and a page and a text that show them."""
